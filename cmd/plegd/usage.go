package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// The exit codes of a wrong flag or argument. None of them is a verdict: run has
// no verdict, and the formats of check for other programs have fixed codes.
const (
	exitUsage    = 4
	exitRunUsage = 2
	codeOfUsage  = -1 // usageCode has the command's
)

// usage marks err as a wrong flag or argument: nothing was started. nil stays nil.
func usage(err error) error {
	if err == nil {
		return nil
	}
	return &exitError{err, codeOfUsage}
}

// usageCode is the exit code of a wrong flag or argument of a command. The
// format is read from the words that were typed: the error may be in a flag
// before -o.
func usageCode(cmd *cobra.Command, args []string) int {
	switch cmd.CommandPath() {
	case "plegd run", "plegd completion":
		return exitRunUsage
	case "plegd check":
		for _, arg := range args {
			switch {
			case strings.HasSuffix(arg, "npd"):
				return npdUnknown
			case strings.HasSuffix(arg, "nagios"):
				return exitUnknown
			}
		}
	}
	return exitUsage
}

// setUsage makes every wrong flag and argument of cmd and of the commands below
// it a usage error of one line, with a suggestion for a mistyped name.
func setUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w%s (see %s --help)", flagError(err), suggestFlag(cmd, err), cmd.CommandPath()))
	})
	check := cmd.Args
	if check == nil {
		check = cobra.ArbitraryArgs
	}
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		err := check(cmd, args)
		switch {
		case err == nil:
			return nil
		case len(args) > 0 && cmd.HasAvailableSubCommands() && cmd.ValidArgsFunction == nil:
			err = fmt.Errorf("unknown command %q%s", args[0], didYouMean(cmd.SuggestionsFor(args[0])))
		}
		return usage(fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath()))
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
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, "--"+f.Name) })
	return similar("--"+unknown.GetSpecifiedName(), names)
}

// similar returns the names that a mistyped one may have meant, by cobra's own
// measure: it suggests commands, so the names are made some.
func similar(typed string, names []string) string {
	parent := &cobra.Command{SuggestionsMinimumDistance: suggestDistance}
	for _, n := range names {
		parent.AddCommand(&cobra.Command{Use: n, Run: func(*cobra.Command, []string) {}})
	}
	return didYouMean(parent.SuggestionsFor(typed))
}

func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return ": did you mean " + strings.Join(names, " or ") + "?"
}
