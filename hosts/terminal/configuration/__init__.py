"""What a run is told to work with: its settings, the presets, tools and databases that they name. No command, no output."""
