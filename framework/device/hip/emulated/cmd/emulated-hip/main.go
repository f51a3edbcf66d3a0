// Command emulated-hip builds the emulated HIP runtime and the images that stand for code objects, and prints the environment to
// use them, for a shell to evaluate. It runs at the top of the source tree. Arguments are the element types to prepare; none: all.
//
// With a command behind "--" it runs that on a machine whose GPUs execute the committed code objects by an interpreter, under the
// model of the caches, and fails where kernels make mistakes:
//
//	emulated-hip --arch gfx90a --gpus 4 --seed 7 -- bin/mscclpp-run -n 4 check --device hip
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	cuda "github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	"github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
	"github.com/mscclpp-go/mscclpp/internal/gfx/gpus"
)

func main() {
	arch := flag.String("arch", "gfx942", "of the GPUs that execute code objects: gfx942 or gfx90a")
	count := flag.Int("gpus", 8, "how many there are")
	seed := flag.Uint64("seed", 1, "decides in which order waves advance, and when data moves")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := func() error {
		for i, a := range os.Args {
			if a == "--" && flag.NArg() > 0 && i == len(os.Args)-flag.NArg()-1 {
				return interpreted(ctx, gpus.Options{GPUs: *count, Shape: gpus.Shape(*arch), Seed: *seed}, flag.Args())
			}
		}
		return run(ctx, flag.Args())
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, "emulated-hip:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, types []string) error {
	library, _, err := emulated.Libraries(ctx)
	if err != nil {
		return err
	}
	dir := filepath.Join(filepath.Dir(library), "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	sources := append(emulated.Tree(".", types...), emulated.Plans(".", types...))
	if err := cuda.Prepare(ctx, dir, append(sources, emulated.Inference(".")...)...); err != nil {
		return err
	}
	fmt.Printf("export %s='%s' %s='%s'\n", hip.EnvLibrary, library, cuda.EnvImages, dir)
	return nil
}

// interpreted runs a command. Its output is that of the command.
func interpreted(ctx context.Context, o gpus.Options, command []string) (err error) {
	library, _, err := emulated.Libraries(ctx)
	if err != nil {
		return err
	}
	machine, err := gpus.Start(o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, machine.Close()) }()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.Env = append(os.Environ(), hip.EnvLibrary+"="+library, fmt.Sprintf("%s=%d", cuda.EnvGPUs, o.GPUs))
	c.Env = append(c.Env, emulated.MachineEnv(machine.Path(), o.Shape.Arch)...)
	return c.Run()
}
