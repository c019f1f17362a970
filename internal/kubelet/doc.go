// Package kubelet models the node's kubelet: its rules with their messages word for word, its relists, and the Ready
// condition that it and the node controller write. It is pure: plain values in, plain values out, and the time is a
// parameter. It reads facts and what internal/health observes in them, and no reason.
package kubelet
