package testbed_test

import (
	"context"
	"os"
	"testing"

	"saltern/testbed"
)

func TestSaltAnswersAndLeavesNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a real Salt")
	}
	ctx := context.Background()
	env, err := testbed.PythonEnv(ctx, "salt-3008.4")
	if err != nil {
		t.Fatal(err)
	}
	bed, err := testbed.New("t")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := bed.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(bed.Dir); !os.IsNotExist(err) {
			t.Errorf("the folder is still there: %v", err)
		}
	}()
	salt, err := testbed.NewSalt(bed, testbed.SaltOptions{Env: env, Minions: []string{"alpha", "beta"}})
	if err != nil {
		t.Fatal(err)
	}
	if err := bed.Start(ctx, salt); err != nil {
		t.Fatal(err)
	}
	out, err := salt.Run(ctx, "salt", "--out=json", "--static", "*", "test.echo", "hello")
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]string
	if err := out.JSON(&got); err != nil {
		t.Fatal(err)
	}
	if got["alpha"] != "hello" || got["beta"] != "hello" {
		t.Errorf("test.echo gave %v", got)
	}
}
