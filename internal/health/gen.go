package health

//go:generate go run github.com/plegd/plegd/cmd/plegd reasons --markdown ../../docs/reasons
