"""What an assistant reads of a service by the Model Context Protocol: tools and resources, which change nothing."""
