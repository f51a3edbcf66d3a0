// Command emulated-hip builds the emulated HIP runtime and the images that stand for code objects, and prints the environment to
// use them, for a shell to evaluate. It runs at the top of the source tree. Arguments are the element types to prepare; none: all.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	cuda "github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/device/hip"
	"github.com/mscclpp-go/mscclpp/framework/device/hip/emulated"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
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
	if err := cuda.Prepare(ctx, dir, append(emulated.Tree(".", types...), emulated.Plans(".", types...), emulated.Inference("."))...); err != nil {
		return err
	}
	fmt.Printf("export %s='%s' %s='%s'\n", hip.EnvLibrary, library, cuda.EnvImages, dir)
	return nil
}
