"""Text, SVG and HTML of graphs, states and runs. Shows what the tables hold; needs neither Panel nor Bokeh."""
