package evidencetest

// Locks is a /proc/locks with locks of each kind, some of them with waiters.
const Locks = `1: POSIX  ADVISORY  WRITE 900 fe:00:77 0 EOF
2: FLOCK  ADVISORY  WRITE 2000 fe:00:5678 0 EOF
2: -> FLOCK  ADVISORY  WRITE 1000 fe:00:5678 0 EOF
2:  -> FLOCK  ADVISORY  WRITE 1500 fe:00:5678 0 EOF
3: OFDLCK ADVISORY  READ -1 fe:00:99 0 EOF
3: -> OFDLCK ADVISORY  WRITE -1 fe:00:99 0 EOF
3: -> POSIX  ADVISORY  WRITE 1600 fe:00:99 0 EOF
4: LEASE  ACTIVE    READ 1700 fe:00:12 0 EOF
`
