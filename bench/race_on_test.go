//go:build race

package main

// raced: the race detector makes sync.Pool forget at random, buffers of whole
// answers among them.
const raced = true
