// Package facts holds the plain values that plegd measures and judges, with their units and
// their JSON: what the sources sample, what the runtime answers, and the verdict of them.
//
// A value never changes once it is published. The package contains no rule: it compares
// nothing with a threshold of the kubelet's, and it imports no other package of plegd.
package facts
