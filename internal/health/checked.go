package health

// CheckedKubelets are the kubelet versions against which the model's predictions were
// tested (make e2e-kubelet).
func CheckedKubelets() []string { return []string{"1.34.4", "1.36.2"} }
