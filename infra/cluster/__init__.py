"""The stack of one cluster: functions, permissions, queues, event rules, alarms."""
