package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes of a wrong flag or argument. None of them is a verdict: run has
// no verdict, and the formats of check for other programs have fixed codes.
const (
	exitUsage    = 4
	exitRunUsage = 2
)

// usageError is a wrong command, flag or argument: nothing was started.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }

func (e *usageError) Unwrap() error { return e.err }

// usage marks err as a wrong flag or argument; nil stays nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &usageError{err}
}

// usageCode is the exit code of a wrong flag or argument of a command. The
// format is read from the command line as it was typed: the error may be in a
// flag before -o.
func usageCode(cmd *cobra.Command, args []string) int {
	switch cmd.CommandPath() {
	case "plegd run", "plegd completion":
		return exitRunUsage
	case "plegd check":
		switch typedOutput(args) {
		case "npd":
			return npdUnknown
		case "nagios":
			return exitUnknown
		}
	}
	return exitUsage
}

// typedOutput is the last value of -o or --output on a command line.
func typedOutput(args []string) (value string) {
	for i, a := range args {
		switch {
		case a == "-o" || a == "--output":
			if i+1 < len(args) {
				value = args[i+1]
			}
		case strings.HasPrefix(a, "--output="):
			value = strings.TrimPrefix(a, "--output=")
		case strings.HasPrefix(a, "-o"):
			value = strings.TrimPrefix(strings.TrimPrefix(a, "-o"), "=")
		}
	}
	return value
}

// setUsage makes every wrong flag and argument of cmd and of the commands below
// it a usageError of one line, with a suggestion for a mistyped name.
func setUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w%s (see %s --help)", flagError(err), suggestFlag(cmd, err), cmd.CommandPath()))
	})
	check := cmd.Args
	if check == nil {
		check = cobra.ArbitraryArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 && cmd.HasAvailableSubCommands() && cmd.ValidArgsFunction == nil && check(cmd, args) != nil {
			return usage(fmt.Errorf("unknown command %q%s (see %s --help)", args[0], didYouMean(cmd.SuggestionsFor(args[0])), cmd.CommandPath()))
		}
		if err := check(cmd, args); err != nil {
			return usage(fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath()))
		}
		return nil
	}
	cmd.SuggestionsMinimumDistance = suggestDistance
	for _, c := range cmd.Commands() {
		setUsage(c)
	}
}

// suggestDistance is how many letters of a mistyped name may be wrong.
const suggestDistance = 2

// suggestFlag returns the flags that a mistyped one may have meant.
func suggestFlag(cmd *cobra.Command, err error) string {
	var unknown *pflag.NotExistError
	if !errors.As(err, &unknown) {
		return ""
	}
	var names []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	var flags []string
	for _, n := range similar(unknown.GetSpecifiedName(), names) {
		flags = append(flags, "--"+n)
	}
	return didYouMean(flags)
}

// similar returns the names that a mistyped one may have meant, by cobra's own
// measure: it suggests commands, so the names are made some.
func similar(typed string, names []string) []string {
	parent := &cobra.Command{SuggestionsMinimumDistance: suggestDistance}
	for _, n := range names {
		parent.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	return parent.SuggestionsFor(typed)
}

func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(names, " or ") + "?"
}

// choice is the value of a flag that takes one of a few words.
type choice struct {
	value   *string
	allowed []string
}

// String returns the word.
func (c *choice) String() string { return *c.value }

// Set takes one of the allowed words.
func (c *choice) Set(s string) error {
	if !slices.Contains(c.allowed, s) {
		return errors.New("want " + words(c.allowed))
	}
	*c.value = s
	return nil
}

// Type is the name of the value in the help.
func (c *choice) Type() string { return "format" }

// words lists words: "a, b or c".
func words(list []string) string {
	last := len(list) - 1
	if last < 1 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:last], ", ") + " or " + list[last]
}

// choiceFlag adds a flag that takes one of a few words, which complete.
func choiceFlag(cmd *cobra.Command, name string, value *string, allowed []string, help string) {
	cmd.Flags().Var(&choice{value, allowed}, name, help)
	completeFlag(cmd, name, allowed)
}

// completeFlag completes the values of a flag that cmd has.
func completeFlag(cmd *cobra.Command, name string, values []string) {
	// The only error is of a flag that cmd does not have.
	_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// outputFlag adds -o to cmd. The first of the formats is the default.
func outputFlag(cmd *cobra.Command, formats ...string) *string {
	output := formats[0]
	cmd.Flags().VarP(&choice{&output, formats}, "output", "o", "output format: "+words(formats))
	completeFlag(cmd, "output", formats)
	return &output
}
