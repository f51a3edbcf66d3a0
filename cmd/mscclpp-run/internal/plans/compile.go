package plans

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/plan/library"
	"github.com/mscclpp-go/mscclpp/plan/schema"
)

func compile(env *verb.Env) *cobra.Command {
	var output string
	var shape library.Shape
	var long strings.Builder
	long.WriteString(`Run a program that prints a plan, and write the plan to a file: PROGRAM.go or a folder with go run,
PROGRAM.py with python3, anything else by itself. The arguments are those of the program.
Or write a plan of the library, for --ranks ranks:
`)
	for _, e := range library.Plans() {
		fmt.Fprintf(&long, "\n  %-30s  %s", e.Name, e.Summary)
	}
	c := &cobra.Command{
		Use:   "compile PROGRAM|NAME [ARGUMENT…]",
		Short: "make a plan with a program, or for a shape of the job",
		Long:  long.String(),
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) == 0 {
				return verb.Usage("plan compile: expected a program, or the name of a plan of the library")
			}
			if !inLibrary(args[0]) {
				if err := verb.Beside(c.Flags(), args[0], "the program gets its arguments alone, and it is no plan of the library", "ranks", "per-host", "blocks", "in-place"); err != nil {
					return verb.Usage("plan compile: %v", err)
				}
			}
			plan, err := made(c.Context(), args, shape, env.Stderr)
			if err != nil {
				return err
			}
			if output == "-" {
				_, err = fmt.Fprintf(env.Stdout, "%s\n", plan.Encode(2))
				return err
			}
			return plan.WriteFile(output)
		},
		Args: cobra.ArbitraryArgs,
	}
	f := c.Flags()
	f.StringVarP(&output, "output", "o", "-", "FILE to write, compressed if it ends in .gz; - for the standard output")
	f.IntVar(&shape.Ranks, "ranks", 0, "ranks of a plan of the library")
	f.IntVar(&shape.PerHost, "per-host", 0, "ranks of each host; default: all of them")
	f.IntVar(&shape.Blocks, "blocks", 0, "thread blocks, or instances; default 4")
	f.BoolVar(&shape.InPlace, "in-place", false, "the plan works on one buffer")
	return c
}

func inLibrary(name string) bool {
	return slices.ContainsFunc(library.Plans(), func(e library.Entry) bool { return e.Name == name })
}

func made(ctx context.Context, args []string, s library.Shape, stderr io.Writer) (*schema.Plan, error) {
	if inLibrary(args[0]) {
		if len(args) > 1 {
			return nil, verb.Usage("plan compile: %s is a plan of the library, and takes no argument %q", args[0], args[1])
		}
		return library.Compile(args[0], s)
	}
	program, err := runner(args)
	if err != nil {
		return nil, err
	}
	if ctx == nil {
		ctx = context.Background()
	}
	var out bytes.Buffer
	c := exec.CommandContext(ctx, program[0], program[1:]...)
	c.Stdout, c.Stderr = &out, stderr
	if err := c.Run(); err != nil {
		var ended *exec.ExitError
		if errors.As(err, &ended) {
			return nil, &verb.Error{Code: 1, Err: fmt.Errorf("plan compile: %s ended with %w", args[0], err)}
		}
		return nil, fmt.Errorf("plan compile: %s: %w", args[0], err)
	}
	if len(bytes.TrimSpace(out.Bytes())) == 0 {
		return nil, fmt.Errorf("plan compile: %s printed nothing: expected a plan", args[0])
	}
	plan, err := schema.Parse(out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("plan compile: the output of %s: %w", args[0], err)
	}
	return plan, nil
}

// runner is the command line that runs a program.
func runner(args []string) ([]string, error) {
	name := args[0]
	info, err := os.Stat(name)
	if err != nil {
		return nil, fmt.Errorf("plan compile: %w; it is no plan of the library either", err)
	}
	if !strings.ContainsRune(name, filepath.Separator) {
		name = "." + string(filepath.Separator) + name
	}
	with := append([]string{name}, args[1:]...)
	switch {
	case info.IsDir() || strings.HasSuffix(name, ".go"):
		return append([]string{"go", "run"}, with...), nil
	case strings.HasSuffix(name, ".py"):
		return append([]string{"python3"}, with...), nil
	}
	return with, nil
}
