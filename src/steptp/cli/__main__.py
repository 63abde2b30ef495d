from steptp.cli import main

main()
