package de_resources.local_files

import java.net.URI
import java.nio.file.Files

import org.apache.hadoop.conf.Configuration
import org.apache.hadoop.fs.{ChecksumFs, DelegateToFileSystem, FileStatus, LocalFileSystem, Path, RawLocalFileSystem}
import org.apache.hadoop.fs.permission.FsPermission

/** Hadoop's local files, with two questions answered by Java itself for which Hadoop starts `chmod` and `readlink`. */
class RawFiles extends RawLocalFileSystem {

  /** As `chmod` with a number of four digits does: a folder keeps that its files belong to its user or its group. */
  override def setPermission(path: Path, permission: FsPermission): Unit = {
    val file = pathToFile(path).toPath
    val now = Files.getAttribute(file, "unix:mode").asInstanceOf[Int]
    val kept = if (Files.isDirectory(file)) now & 0xc00 else 0
    Files.setAttribute(file, "unix:mode", permission.toShort | kept)
  }

  override def getFileLinkStatus(path: Path): FileStatus =
    if (Files.isSymbolicLink(pathToFile(path).toPath)) super.getFileLinkStatus(path) else getFileStatus(path)
}

/** The files of `file:`, with checksums beside them, as Hadoop has them by default: `fs.file.impl`. */
class LocalFiles extends LocalFileSystem(new RawFiles)

class RawFs(uri: URI, conf: Configuration) extends DelegateToFileSystem(uri, new RawFiles, conf, "file", false) {
  override def getUriDefaultPort: Int = -1
  override def isValidName(name: String): Boolean = true
}

/** The same for Hadoop's newer interface, by which commits and checkpoints are renamed: `fs.AbstractFileSystem.file.impl`. */
class LocalFs(uri: URI, conf: Configuration) extends ChecksumFs(new RawFs(uri, conf))
