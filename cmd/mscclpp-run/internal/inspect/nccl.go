package inspect

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/cmd/mscclpp-run/internal/verb"
	"github.com/mscclpp-go/mscclpp/internal/programdir"
)

// NCCL returns the verb nccl, which prints where the NCCL-compatible library is.
func NCCL(env *verb.Env) *cobra.Command {
	return &cobra.Command{
		Args: verb.FlagsAlone,
		Long: `Prints the path of libnccl.so.2 of this project. A program that uses NCCL runs on it when the loader takes it first:

  LD_PRELOAD=$(mscclpp-run nccl) torchrun --nproc-per-node 2 train.py
  mscclpp-run -n 2 --nccl python train.py`,
		RunE: func(*cobra.Command, []string) error {
			path, err := ncclLibrary()
			if err == nil {
				_, err = fmt.Fprintln(env.Stdout, path)
			}
			return err
		},
	}
}

// ncclLibrary returns the absolute path of libnccl.so.2: where make build puts it, beside the
// program, or where make install does.
func ncclLibrary() (string, error) {
	bin, err := programdir.Get()
	if err != nil {
		return "", err
	}
	if real, err := filepath.EvalSymlinks(bin); err == nil {
		bin = real
	}
	places := []string{
		filepath.Join(bin, "lib", "libnccl.so.2"),
		filepath.Join(filepath.Dir(bin), "lib", "mscclpp", "libnccl.so.2"),
	}
	for _, p := range places {
		if _, err := os.Stat(p); err == nil {
			return p, nil
		}
	}
	return "", fmt.Errorf("no libnccl.so.2 beside this program: expected it at %s (make build, or make install, puts it there)", strings.Join(places, " or "))
}

// Preload returns LD_PRELOAD=… that puts the library before what the variable names already.
func Preload() (string, error) {
	path, err := ncclLibrary()
	if err != nil {
		return "", err
	}
	if before := os.Getenv("LD_PRELOAD"); before != "" && before != path {
		path += ":" + before
	}
	return "LD_PRELOAD=" + path, nil
}
