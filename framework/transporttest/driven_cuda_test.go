package transporttest_test

import (
	"context"
	"regexp"
	"testing"
	"time"

	"github.com/mscclpp-go/mscclpp/framework/device"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda"
	"github.com/mscclpp-go/mscclpp/framework/device/cuda/emulated"
	"github.com/mscclpp-go/mscclpp/framework/kernel/actor"
	"github.com/mscclpp-go/mscclpp/framework/transporttest"
	"github.com/mscclpp-go/mscclpp/framework/transporttest/loopback"
)

// The same tests on what a GPU exports: on the GPUs of the machine, or on emulated
// ones.
func TestPortsThatRanksDriveOnCUDA(t *testing.T) {
	count, err := cuda.Count()
	if err != nil {
		t.Setenv(cuda.EnvLibrary, emulated.Build(t))
		t.Setenv(emulated.EnvImages, emulated.Images(t, emulated.Source{
			Spec: "../kernel/actor/kernels/kernels.json", Images: "../kernel/actor/image", Types: []string{"f32"},
		}))
		if count, err = cuda.Count(); err != nil {
			t.Fatal(err)
		}
	}
	set, err := actor.Images()
	if err != nil {
		t.Fatal(err)
	}
	report, err := transporttest.Suite(t.Context(), transporttest.Options{
		Open: func(context.Context) (*transporttest.Side, error) {
			return transporttest.Embedded(armed{&broken{Transport: loopback.NewByRank()}, set}), nil
		},
		Device:    func(rank int) (device.Device, error) { return cuda.Open(rank % count) },
		Match:     regexp.MustCompile("^driven/"),
		CallLimit: 20 * time.Second,
		TestLimit: time.Minute,
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Results) < 10 {
		t.Errorf("%d tests ran, expected 10 with those of kernels", len(report.Results))
	}
	for _, r := range report.Results {
		if !r.Pass {
			t.Errorf("%s: %s", r.Name, r.Error)
		}
	}
}
