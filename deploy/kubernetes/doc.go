// Package kubernetes holds the manifests that run plegd as a DaemonSet, and the test that builds them with kustomize
// and decodes them strictly into the API's types.
//
// It is a module of its own: plegd does not depend on what the test imports.
package kubernetes
