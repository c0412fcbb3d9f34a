"""No acknowledged event is lost, under kills, partitions, full disks and power cuts."""
