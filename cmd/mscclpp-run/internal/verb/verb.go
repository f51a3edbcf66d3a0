// Package verb is what the verbs of mscclpp-run have of the launcher: its outputs, its
// configuration, and how they say that something is wrong.
package verb

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"

	"github.com/mscclpp-go/mscclpp/framework/config"
)

// Env is the launcher as a verb sees it.
type Env struct {
	Stdout, Stderr io.Writer

	// Config loads the configuration, once.
	Config func() (*config.Effective, error)

	// Asked is what the launcher's own flags ask for, once all are parsed.
	Asked func() Asked
}

// Asked are flags of the launcher for which not every verb has a use.
type Asked struct {
	Ranks      bool // how many, or on which hosts
	Settings   []config.Setting
	ConfigFile string
}

// Error ends the program with a code and, when Err is nil, without a word: everything was
// said already.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// Usage wraps a mistake on the command line.
func Usage(format string, args ...any) error {
	return &Error{Code: 2, Err: fmt.Errorf(format, args...)}
}

// Beside refuses flags that would be ignored beside another one, or beside an argument: a flag that
// is given has to have an effect.
func Beside(f *pflag.FlagSet, other, why string, names ...string) error {
	for _, name := range names {
		if f.Changed(name) {
			return fmt.Errorf("--%s beside %s: %s", name, other, why)
		}
	}
	return nil
}

// FlagsAlone is for verbs without arguments: cobra would call one an unknown command.
func FlagsAlone(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return Usage("%s: unexpected argument %q: expected flags alone", c.Name(), args[0])
	}
	return nil
}

// Mistaken is err with words of ours where it is about a value: the name of a function of Go
// does not help the user.
func Mistaken(err error) error {
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		return err
	}
	expected := map[string]string{
		"int": "a whole number", "intSlice": "whole numbers with commas", "int64": "a whole number", "float64": "a number", "bool": "true or false", "duration": "a duration, such as 90s",
	}[wrong.GetFlag().Value.Type()]
	if expected == "" {
		return err
	}
	if errors.Is(err, strconv.ErrRange) {
		expected += ", and this one is out of range"
	}
	name := "--" + wrong.GetFlag().Name
	if short := wrong.GetFlag().Shorthand; short != "" {
		name = "-" + short + ", " + name
	}
	return fmt.Errorf("invalid argument %q for %q flag: expected %s", wrong.GetValue(), name, expected)
}

// Writable says why a file cannot be written, and leaves none. "" is no file.
func Writable(path string) error {
	info, err := os.Stat(path)
	switch {
	case path == "":
		return nil
	case err == nil && info.IsDir():
		return syscall.EISDIR
	case err == nil:
		return unix.Access(path, unix.W_OK)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	if info, err = os.Stat(filepath.Dir(path)); err != nil {
		return err
	} else if !info.IsDir() {
		return fmt.Errorf("%s: %w", filepath.Dir(path), syscall.ENOTDIR)
	}
	return unix.Access(filepath.Dir(path), unix.W_OK)
}
