// Command allreduce adds up a vector over all ranks of a job:
//
//	mscclpp-run -n 4 allreduce
package main

import (
	"context"
	"fmt"
	"log"
	"unsafe"

	"github.com/mscclpp-go/mscclpp"
)

func main() {
	job, err := mscclpp.Init(context.Background())
	if err != nil {
		log.Fatal(err)
	}
	defer job.Close()

	in, out := make([]float32, 1000), make([]float32, 1000)
	for i := range in {
		in[i] = float32(job.Rank() + i)
	}
	err = job.AllReduce(unsafe.Pointer(&in[0]), unsafe.Pointer(&out[0]), len(in), mscclpp.Float32, mscclpp.Sum, nil)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("rank %d of %d: %v … %v\n", job.Rank(), job.Size(), out[0], out[999])
}
