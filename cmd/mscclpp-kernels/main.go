// Command mscclpp-kernels builds kernel images and checks those that are kept in
// version control against their sources.
//
//	mscclpp-kernels build --spec kernels.json --target x86-64-v3,sm_90 --out DIR
//	mscclpp-kernels check --spec kernels.json --target gpu --out DIR
//	mscclpp-kernels assemble --images DIR --ptxas PATH --out PLUGINS/NAME
//
// See package framework/kernel/image for the form of a spec and of the manifest.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "mscclpp-kernels:", err)
		stop()
		os.Exit(1)
	}
}

// flags that both verbs have.
type flags struct {
	spec, targets, dir string
	opt                image.Options
}

func (f *flags) add(c *cobra.Command) {
	c.Flags().StringVar(&f.spec, "spec", "", "JSON file that lists families, types and macros")
	c.Flags().StringVar(&f.targets, "target", "cpu", "targets, separated by commas; cpu and gpu name all of their kind")
	c.Flags().StringVar(&f.dir, "out", "", "folder of the images and their manifest.json")
	c.Flags().StringVar(&f.opt.Headers, "include", "", "folder of mscclpp/device.h (default: beside this command, or of the source tree)")
	c.Flags().StringVar(&f.opt.Compilers.CPU, "cxx", "", "compiler for CPU targets (default $CXX, g++, clang++)")
	c.Flags().StringVar(&f.opt.Compilers.GPU, "clang", "", "compiler for GPU targets (default clang++-19)")
	c.Flags().IntVarP(&f.opt.Jobs, "jobs", "j", 0, "compilers at once (default: one a CPU)")
	for _, name := range []string{"spec", "out"} {
		_ = c.MarkFlagRequired(name) // fails only for a flag that does not exist
	}
}

// open reads the spec and the targets.
func (f *flags) open(c *cobra.Command) (*image.Spec, error) {
	spec, err := image.ReadSpec(f.spec)
	if err != nil {
		return nil, err
	}
	if f.opt.Targets, err = spec.ParseTargets(f.targets); err != nil {
		return nil, err
	}
	f.opt.Progress = progress(c)
	return spec, nil
}

// progress shows on a terminal what has been done.
func progress(c *cobra.Command) func(done, all int, id string) {
	if !terminal(os.Stderr) {
		return nil
	}
	return func(done, all int, id string) {
		fmt.Fprintf(c.ErrOrStderr(), "\r\x1b[K[%d/%d] %s", done, all, id)
		if done == all {
			fmt.Fprint(c.ErrOrStderr(), "\r\x1b[K")
		}
	}
}

func terminal(f *os.File) bool {
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "mscclpp-kernels",
		Short:         "Build kernel images, check them against their sources, or make machine code of them",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(buildCommand(), checkCommand(), assembleCommand())
	return root
}

func buildCommand() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "build --spec FILE --out DIR",
		Short: "Compile what is not up to date and write the manifest",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			spec, err := f.open(c)
			if err != nil {
				return err
			}
			m, err := image.Build(c.Context(), spec, f.dir, f.opt)
			if err != nil {
				return err
			}
			fmt.Fprintf(c.OutOrStdout(), "%s: %d images in %s\n", m.Name, len(m.Images), f.dir)
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.opt.Store, "store", "", "folder in which images are kept by all that decides their bytes, for builds in other folders")
	return c
}

func checkCommand() *cobra.Command {
	var f flags
	c := &cobra.Command{
		Use:   "check --spec FILE --out DIR",
		Short: "Compare images with their sources",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			spec, err := f.open(c)
			if err != nil {
				return err
			}
			r, err := image.Check(c.Context(), spec, f.dir, f.opt)
			if err != nil {
				return err
			}
			out := c.OutOrStdout()
			if len(r.Rebuilt) > 0 || len(r.Proven) == 0 {
				fmt.Fprintf(out, "%s: %d images equal a new build\n", spec.Name, len(r.Rebuilt))
			}
			if len(r.Proven) > 0 {
				fmt.Fprintf(out, "%s: %d images not built again: they equalled a build of the same sources by the same compiler, which is noted in %s\n", spec.Name, len(r.Proven), f.opt.Proven)
			}
			if len(r.Hashed) > 0 {
				fmt.Fprintf(out, "%s: %d images compared by source hash alone: the compiler here is %q\n", spec.Name, len(r.Hashed), r.Compiler)
			}
			return nil
		},
	}
	f.add(c)
	c.Flags().StringVar(&f.opt.Proven, "proven", "", "folder that notes which images equalled a new build: they are not built again")
	return c
}
