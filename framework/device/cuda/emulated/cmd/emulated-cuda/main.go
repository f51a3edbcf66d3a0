// Command emulated-cuda builds the emulated driver and the images that it needs, and
// prints the environment to use it, for a shell to evaluate. It runs at the top of
// the source tree. Arguments are the element types to prepare; none: all. With --library
// it builds the driver alone and prints where it is: enough where kernels are the PTX.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "emulated-cuda:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, types []string) error {
	library, err := emulated.Library(ctx)
	if err != nil {
		return err
	}
	if slices.Equal(types, []string{"--library"}) {
		fmt.Println(library)
		return nil
	}
	dir := filepath.Join(filepath.Dir(library), "images")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	sources := emulated.Tree(".")
	for i := range sources {
		sources[i].Types = types
	}
	if err := emulated.Prepare(ctx, dir, sources...); err != nil {
		return err
	}
	path := filepath.Dir(library)
	if more := os.Getenv("LD_LIBRARY_PATH"); more != "" && more != path && !strings.HasPrefix(more, path+":") {
		path += ":" + more
	}
	fmt.Printf("export LD_LIBRARY_PATH='%s' %s='%s' %s='%s'\n", path, cuda.EnvLibrary, library, emulated.EnvImages, dir)
	return nil
}
