package health

// CheckedKubelets are the kubelet versions beside which the model was run, with
// its predictions compared to what they did (make e2e-kubelet).
func CheckedKubelets() []string { return []string{"1.34.4", "1.36.2"} }
