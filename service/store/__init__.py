"""Access to Redis or Valkey: histories, the event log, connections and failures."""
