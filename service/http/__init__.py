"""HTTP: the protocol and its limits, middleware, routes and problem documents."""
