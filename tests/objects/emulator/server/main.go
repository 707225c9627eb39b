// A third party's emulator of Google's object storage, in memory, on a free port of the loopback.
//
// Makes the buckets that are its arguments, prints where it listens, and ends when its input does: whoever started it
// holds that, so it never outlives a test that was killed.
package main

import (
	"fmt"
	"io"
	"log"
	"os"

	"github.com/fsouza/fake-gcs-server/fakestorage"
)

func main() {
	server, err := fakestorage.NewServerWithOptions(fakestorage.Options{Scheme: "http", Host: "127.0.0.1", Port: 0})
	if err != nil {
		log.Fatal(err)
	}
	for _, name := range os.Args[1:] {
		server.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: name})
	}
	fmt.Println(server.URL())
	_, _ = io.Copy(io.Discard, os.Stdin)
	server.Stop()
}
