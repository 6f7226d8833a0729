// Runs Azurite's blob service in memory and prints its port. Commands on
// standard input, one per line, each answered by one line:
//
//   table [cert key]  start the table service and print its port; with the
//   queue [cert key]  paths of a certificate and its key, over HTTPS, where it
//                     accepts access tokens (queue: the same)
//   stop              refuse connections to the blob service
//   start             accept them again
//
// The program exits at the end of standard input, so that it can't outlive the
// test that started it.
//
// Azurite's own command would outlive the test, and after a restart from its
// files it does not know when leases expire. Telemetry is off by default.

const { createInterface } = require("readline");
const { BlobServerFactory } = require("azurite/dist/src/blob/BlobServerFactory");

function fail(error) {
  console.error(`Azurite: ${error.message}`);
  process.exit(1);
}

async function startOther(kind, cert = "", key = "") {
  const path = `azurite/dist/src/${kind.toLowerCase()}/${kind}`;
  const Server = require(`${path}Server`).default;
  const Configuration = require(`${path}Configuration`).default;
  const configuration = Object.assign(new Configuration("127.0.0.1", 0), {
    enableAccessLog: false,
    isMemoryPersistence: true,
    ...(cert && { cert, key, oauth: "basic" }),
  });
  const server = new Server(configuration);
  await server.start();
  server.httpServer.on("error", fail);
  console.log(server.httpServer.address().port);
}

async function main() {
  const server = await new BlobServerFactory().createServer();
  await server.start();
  server.httpServer.on("error", fail);
  const { address, port } = server.httpServer.address();
  const commands = {
    stop() {
      server.httpServer.close(() => console.log("stopped"));
      server.httpServer.closeAllConnections();
    },
    start() {
      server.httpServer.listen(port, address, () => console.log("started"));
    },
    table: (...tls) => startOther("Table", ...tls).catch(fail),
    queue: (...tls) => startOther("Queue", ...tls).catch(fail),
  };
  createInterface({ input: process.stdin })
    .on("line", (line) => {
      const [command, ...parameters] = line.split(" ");
      commands[command](...parameters);
    })
    .on("close", () => process.exit(0));
  console.log(port);
}

main().catch(fail);
