// Package runtime gives the end-to-end tests a container runtime of their own, its pods, and what
// can break both: containerd in several versions, CRI-O, or cri-dockerd with dockerd.
package runtime
