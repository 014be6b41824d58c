"""What people look at: colours, drawings, tables, the report and the explorer."""
