"""This paper: its printed numbers, claims, verdicts, figures and report page. Reads what `onebyone.runs` wrote."""
