"""What ``hm.verify`` looks at, one file a question; shares no code with the engines that find cells."""
