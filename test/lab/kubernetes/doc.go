// Package kubernetes gives the end-to-end tests an unmodified Kubernetes control plane.
package kubernetes
