from vestnik.cli import main

main()
