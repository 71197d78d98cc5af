"""From a decoded message to a durable acknowledgement: validate, batch, commit, answer."""
