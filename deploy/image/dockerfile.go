package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// rootfsCopy is the one line that puts files into the last stage.
const rootfsCopy = "--from=build /rootfs/ /"

// parseDockerfile reads the last stage of a Dockerfile. It knows the few instructions that plegd's has there and
// refuses every other, so that the two ways to build the image cannot drift apart unseen.
func parseDockerfile(text string, args map[string]string) (v1.Config, error) {
	config := v1.Config{Labels: map[string]string{}, Env: []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, WorkingDir: "/"}
	values := map[string]string{}
	var base string
	var copied bool
	for _, line := range instructions(text) {
		name, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		if name == "FROM" {
			base, copied = rest, false
			continue
		}
		if base != "scratch" {
			continue
		}
		var err error
		switch name {
		case "COPY":
			copied = rest == rootfsCopy
			if !copied {
				err = fmt.Errorf("COPY %s: want %s", rest, rootfsCopy)
			}
		case "ARG":
			key, value, _ := strings.Cut(rest, "=")
			if given := args[key]; given != "" {
				value = given
			}
			values[key] = value
		case "LABEL":
			err = labels(rest, values, config.Labels)
		case "USER":
			config.User = rest
		case "EXPOSE":
			config.ExposedPorts = map[string]struct{}{rest: {}}
		case "ENTRYPOINT":
			err = json.Unmarshal([]byte(rest), &config.Entrypoint)
		case "CMD":
			err = json.Unmarshal([]byte(rest), &config.Cmd)
		default:
			err = fmt.Errorf("%s: this builder does not know it: teach it, or leave it out", name)
		}
		if err != nil {
			return config, err
		}
	}
	switch {
	case base != "scratch":
		return config, fmt.Errorf("the last stage is FROM %s: want scratch", base)
	case !copied:
		return config, fmt.Errorf("the last stage has no COPY %s", rootfsCopy)
	case len(config.Entrypoint) == 0:
		return config, fmt.Errorf("the last stage has no ENTRYPOINT")
	}
	return config, nil
}

// instructions joins continued lines and leaves out comments.
func instructions(text string) []string {
	var out []string
	var open string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		more, continued := strings.CutSuffix(line, `\`)
		open += strings.TrimSpace(more) + " "
		if !continued {
			out = append(out, strings.TrimSpace(open))
			open = ""
		}
	}
	return out
}

// labels reads key="value" pairs, with the stage's arguments in the values.
func labels(rest string, values, into map[string]string) error {
	for rest = strings.TrimSpace(rest); rest != ""; rest = strings.TrimSpace(rest) {
		key, after, ok := strings.Cut(rest, `="`)
		value, next, closed := strings.Cut(after, `"`)
		if !ok || !closed {
			return fmt.Errorf(`LABEL %s: want key="value"`, rest)
		}
		into[key] = os.Expand(value, func(name string) string { return values[name] })
		rest = next
	}
	return nil
}
