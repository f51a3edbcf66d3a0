// Command fused multiplies matrices on all GPUs of a job with a kernel of its own,
// whose finished tiles go to the peers while it runs, and compares that with the same
// multiplication followed by an all-gather. README.md says how to build the kernel.
//
//	mscclpp-run -n 4 example-fused -m 8192 -n 8192 -k 8192 --iters 20
package main

import (
	"context"
	"embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/mscclpp-go/mscclpp"
	"github.com/mscclpp-go/mscclpp/framework"
	"github.com/mscclpp-go/mscclpp/framework/kernel/image"
)

// built is the kernel as PTX, which the driver of any NVIDIA GPU from sm_80 on compiles.
//
//go:embed image
var built embed.FS

type options struct {
	m, n, k, iters       int
	device, kernels, ptx string
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("fused: ")
	o, err := parse(os.Args[1:], os.Stderr)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err != nil {
		os.Exit(2) // the flag package has said why
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err = run(ctx, o)
	stop()
	if err != nil {
		log.Fatal(err)
	}
}

func parse(arguments []string, usage io.Writer) (o options, err error) {
	f := flag.NewFlagSet("fused", flag.ContinueOnError)
	f.SetOutput(usage)
	f.IntVar(&o.m, "m", 8192, "rows of A and C, divided among the ranks")
	f.IntVar(&o.n, "n", 8192, "rows of the transposed B, columns of C")
	f.IntVar(&o.k, "k", 8192, "columns of A and of the transposed B")
	f.IntVar(&o.iters, "iters", 20, "measurements; 0: the results are checked and nothing is measured")
	f.StringVar(&o.device, "device", "cuda", "cuda, one that the configuration brings, or host to try the channels on a machine without a GPU, with small matrices")
	f.StringVar(&o.kernels, "kernels", "", "folder of images that mscclpp-kernels built (default: the PTX within the program)")
	f.StringVar(&o.ptx, "ptx", "", "file of PTX that clang or nvcc made, instead")
	if err := f.Parse(arguments); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		err = fmt.Errorf("argument %q: expected flags alone", f.Arg(0))
	} else if o.iters < 0 {
		err = fmt.Errorf("--iters %d: expected 0 or more", o.iters)
	}
	if err != nil {
		fmt.Fprintln(usage, "fused:", err)
	}
	return o, err
}

func run(ctx context.Context, o options) (err error) {
	job, err := mscclpp.Init(ctx, mscclpp.WithDevice(o.device))
	if err != nil {
		if o.device == "cuda" && errors.Is(err, framework.ErrUnavailable) {
			return fmt.Errorf("every rank needs an NVIDIA GPU; --device host does without, see README.md: %w", err)
		}
		return err
	}
	defer func() { err = errors.Join(err, job.Close()) }()
	code, err := o.image(job.Device().Info().Archs)
	if err != nil {
		return err
	}
	r, err := compare(ctx, job.Comm, code, shape{m: o.m, n: o.n, k: o.k, ranks: job.Size()}, o.iters)
	if err != nil {
		return fmt.Errorf("rank %d: %w", job.Rank(), err)
	}
	if job.Rank() == 0 {
		r.print(os.Stdout)
	}
	return nil
}

// image reads the kernel for the best of the architectures that the device knows.
func (o options) image(archs []string) ([]byte, error) {
	if o.ptx != "" {
		return os.ReadFile(o.ptx)
	}
	dir, err := fs.Sub(built, "image")
	if o.kernels != "" {
		dir, err = os.DirFS(o.kernels), nil
	}
	if err != nil {
		return nil, err
	}
	set, err := image.Open(dir)
	if err != nil {
		return nil, err
	}
	for _, arch := range archs {
		for _, info := range set.Infos() {
			if info.Arch == arch {
				return set.Read(info.ID)
			}
		}
	}
	return nil, fmt.Errorf("%w: no image for %v: build one with mscclpp-kernels, and name its folder by --kernels", framework.ErrUnavailable, archs)
}
