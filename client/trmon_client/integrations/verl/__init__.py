"""Report runs of verl: `import verl` loads `plugin`, which hooks the driver where TRMON_URL is set."""
