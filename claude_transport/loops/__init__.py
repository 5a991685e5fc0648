"""What asyncio and trio need alike: tasks, alarms, cheap waits, watched descriptors, and a thread with a loop of its own."""
