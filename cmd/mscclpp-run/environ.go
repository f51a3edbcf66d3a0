package main

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/framework/bootstrap"
	"github.com/mscclpp-go/mscclpp/framework/config"
	"github.com/mscclpp-go/mscclpp/launch"
	"github.com/mscclpp-go/mscclpp/plugins"
)

// environ is the environment of the ranks: this process's own and the additions.
func (a *app) environ() ([]string, error) {
	more, err := a.additions()
	return append(os.Environ(), more...), err
}

// additions are the variables that only ranks get: the configuration that flags set,
// and what -x asks for.
func (a *app) additions() (env []string, err error) {
	if dir := plugins.BuiltInDir(); dir != "" {
		env = append(env, plugins.EnvBuiltIn+"="+dir)
	}
	if a.effective != nil && len(a.effective.Warned) > 0 {
		env = append(env, config.EnvWarned+"="+strings.Join(a.effective.Warned, ","))
	}
	if a.opts.configFile != "" {
		env = append(env, "MSCCLPP_CONFIG="+a.opts.configFile)
	}
	env = append(env, config.Variables(os.Environ(), a.settings)...)
	for _, x := range a.opts.export {
		name, _, hasValue := strings.Cut(x, "=")
		switch {
		case name == "":
			return nil, verb.Usage("-x %s: expected VAR or VAR=VALUE", x)
		case hasValue:
			env = append(env, x)
		case os.Getenv(name) == "":
			fmt.Fprintf(a.stderr, "mscclpp-run: warning: -x %s: not set here\n", name)
		}
	}
	return env, nil
}

// quote makes a word safe to paste into a shell.
func quote(word string) string {
	if word != "" && !strings.ContainsAny(word, " \t\n'\"\\$`&|;<>()*?[]#~!{}") {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// kept are variables of this module that are about this process or this host.
var kept = []string{
	launch.Mark, bootstrap.EnvUniqueID, bootstrap.EnvSecretFile, "MSCCLPP_BOOTSTRAP__SECRET_FILE", bootstrap.EnvJob,
	bootstrap.EnvListenFD, bootstrap.EnvHostID, "MSCCLPP_BOOTSTRAP__HOST_ID", plugins.EnvBuiltIn,
}

// exported is what the ranks on other hosts get of this environment: the configuration
// in variables, what flags say, and what -x asks for.
func (a *app) exported() ([]string, error) {
	more, err := a.additions()
	if err != nil {
		return nil, err
	}
	var out []string
	for _, e := range append(os.Environ(), more...) {
		name, _, _ := strings.Cut(e, "=")
		asked := slices.Contains(a.opts.export, name) || slices.Contains(a.opts.export, e)
		if asked || strings.HasPrefix(name, "MSCCLPP_") && !slices.Contains(kept, name) {
			out = append(out, e)
		}
	}
	return out, nil
}
