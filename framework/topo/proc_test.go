package topo

import (
	"errors"
	"reflect"
	"testing"
	"testing/fstest"

	"github.com/mscclpp-go/mscclpp/framework"
)

func TestDriver(t *testing.T) {
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	gpus, err := Driver(fstest.MapFS{
		"proc/driver/nvidia/version":                       file("NVRM version: 580\n"),
		"proc/driver/nvidia/gpus/0000:DB:00.0/information": file("Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\nGPU UUID: \t GPU-????????-????-????-????-????????????\n"),
		"proc/driver/nvidia/gpus/0000:19:00.0/information": file("Model: \t\t NVIDIA H200\nGPU UUID: \t GPU-aa-bb\nBus Location: \t 0000:19:00.0\n"),
		"proc/driver/nvidia/gpus/power/x":                  file(""),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := []GPU{
		{Device: cuda(0), Name: "NVIDIA H200", UUID: "GPU-aa-bb", NUMA: -1, PCI: "0000:19:00.0"},
		{Device: cuda(1), Name: "NVIDIA H200", NUMA: -1, PCI: "0000:db:00.0"},
	}
	if !reflect.DeepEqual(gpus, want) {
		t.Errorf("got %+v, want %+v", gpus, want)
	}
	if _, err := Driver(fstest.MapFS{}); !errors.Is(err, framework.ErrUnavailable) {
		t.Errorf("without driver: %v, want ErrUnavailable", err)
	}
	if gpus, err := Driver(fstest.MapFS{"proc/driver/nvidia/version": file("")}); err != nil || len(gpus) != 0 {
		t.Errorf("a driver without GPUs: %v, %v", gpus, err)
	}
}
