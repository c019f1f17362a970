// Package hostile tests plegd against malicious and broken environments: runtimes that send garbage, flood and lie,
// and nodes whose disk, /proc, clock or limits fail. It runs the real plegd, built without the race detector, as a
// separate process, and checks its output, its log and its use of resources. It needs no root and no network.
package hostile
