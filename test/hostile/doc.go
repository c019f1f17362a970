// Package hostile holds the tests of plegd against what means it ill or is
// broken: runtimes that send garbage, flood and lie, and nodes whose disk,
// /proc, clock or limits fail. They run the real plegd, built without the race
// detector, as a process of its own, and look at it from outside: what it says,
// what it logs, and what it uses. No root and no network is needed.
package hostile
