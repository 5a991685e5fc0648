"""What differs between operating systems: the interface of Windows, process trees, locks on files, and watched sockets there."""
