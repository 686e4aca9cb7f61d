from onebyone.cli import main

main()
