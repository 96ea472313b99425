"""What an encoding is claimed to do, measured on its operator."""
